r"""Trainings on real data, and what is not run at all: examined on stored records.

cone-paths      divergence (S, R): D along regularisation paths that are kept inside a cone
overhead        p (E,); ratio (E, S): time of a mirror step over that of torch.optim.SGD

Trainings: the arrays are those of :mod:`mirrormargin.claims.campaign.collect`.
"""

from __future__ import annotations

from mirrormargin.claims.campaign.tables import TABLES
from mirrormargin.claims.experiment import Experiment

__all__ = ["EXPERIMENTS"]

_TITLES = {
    "imdb": "text transformers trained on IMDB at p = 1.1, 2 and 3",
    "imdb-weights": "weights of the IMDB transformers",
    "token-selection": "attention of the IMDB transformers",
    "imdb-optimizers": "a text transformer on IMDB, adaptive and plain optimizers",
    "pruning-imdb": "weights removed from text transformers, IMDB",
    "pruning-plain": "weights removed from text transformers trained by the plain rule, IMDB",
    "pruning-sst2": "weights removed from text transformers, SST-2",
    "pruning-mnist": "weights removed from vision transformers, MNIST",
    "pruning-cifar10": "weights removed from vision transformers, CIFAR-10",
    "cifar10-vit": "a ViT on CIFAR-10, mirror descent and Adam",
    "mnli": "a BERT-type encoder on MultiNLI",
    "civil": "a BERT-type encoder on CivilComments",
    "mnist": "a ViT on MNIST",
    "cifar10": "a ViT on CIFAR-10",
}

EXPERIMENTS = (
    Experiment(
        name="cone-paths",
        title="paths inside a cone",
        needs="a minimiser that keeps to a cone, which is not built",
    ),
    Experiment(
        name="overhead",
        title="steps timed against SGD",
        needs="an idle machine (make bench times it)",
    ),
    *(
        Experiment(
            name=name, title=title, needs="trainings (mirrormargin campaign)", table=TABLES[name]
        )
        for name, title in _TITLES.items()
    ),
)
