r"""What is not run here, trainings on real data above all: examined on stored records.

cone-paths      divergence (S, R): D along regularisation paths that are kept inside a cone
overhead        p (E,); ratio (E, S): time of a mirror step over that of torch.optim.SGD

imdb            p (E,), layers (L,); best_test, selected_test, epochs (E, L, S): test accuracy in %
                of the best epoch on the test set, of the epoch selected on validation data, and
                epochs until the training accuracy reached its bound
imdb-weights    p (E,); above, largest, l1_l2 (E, 3): entries above the threshold, the largest one
                and the l1/l2 ratio, of K, Q and V
token-selection p (E,); score (E, N): scaled attention on the sentiment word of each short review
cifar10-vit     optimizer (2,): "Adam", "MD p=1.1"; epoch (R,); accuracy (2, R) in %;
                near_zero (2, 3), largest (2, 3): entries in the first bin, and the largest one, of
                K, Q and V
mnli, civil, mnist, cifar10
                optimizer (K,) with "SGD", "SNGD", "Adam"; step (R,); loss (K, S, R): training loss;
                accuracy (K, S) in %, of the epoch selected on validation data
"""

from __future__ import annotations

from mirrormargin.claims.experiment import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = tuple(
    Experiment(name=name, title=title, needs=needs)
    for name, title, needs in (
        (
            "cone-paths",
            "paths inside a cone",
            "a minimiser that keeps to a cone, which is not built",
        ),
        ("overhead", "steps timed against SGD", "an idle machine (make bench times it)"),
        ("imdb", "text transformers trained on IMDB at p = 1.1, 2 and 3", "training on IMDB"),
        ("imdb-weights", "weights of the IMDB transformers", "training on IMDB"),
        ("token-selection", "attention of the IMDB transformers", "training on IMDB"),
        ("cifar10-vit", "a ViT on CIFAR-10, mirror descent and Adam", "training on CIFAR-10"),
        ("mnli", "a BERT-type encoder on MultiNLI", "fine-tuning on MultiNLI"),
        ("civil", "a BERT-type encoder on CivilComments", "fine-tuning on CivilComments"),
        ("mnist", "a ViT on MNIST", "training on MNIST"),
        ("cifar10", "a ViT on CIFAR-10", "training on CIFAR-10"),
    )
)
