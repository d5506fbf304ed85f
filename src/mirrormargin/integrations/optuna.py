"""For Optuna: a trial is a training, and one that is hopeless ends early.

def objective(trial):
    p, lr = trial.suggest_float("p", 1.05, 2.0), trial.suggest_float("lr", 1e-4, 0.1, log=True)
    config = find_configuration("digits/tiny", {"optimizer.p": p, "optimizer.lr": lr})
    return train_trial(trial, config, data)

study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=40)
"""

from __future__ import annotations

import os
from typing import Any

from mirrormargin.data import DataSet
from mirrormargin.errors import DivergedError, TrainingError
from mirrormargin.integrations import miss
from mirrormargin.training import TrainingConfig, TrainingFolder, train_model

try:
    from optuna.exceptions import TrialPruned  # pyright: ignore[reportMissingImports]
    from optuna.study import StudyDirection  # pyright: ignore[reportMissingImports]
    from optuna.trial import BaseTrial  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise miss("optuna", "optuna") from error

__all__ = ["train_trial"]


def train_trial(
    trial: BaseTrial,
    config: TrainingConfig,
    data: DataSet | None = None,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> float:
    """Train as a trial of Optuna, and return what its best epoch reached on validation data.

    After each epoch but the last the best value so far is reported, and the trial is pruned if the
    study's pruner says so, or if the loss is no longer finite. Trials of the same configuration
    share a folder: what one of them has trained is not trained again.

    Args:
        trial: Its attribute "folder" is set to where the training is.
        config: What to train, with what the trial suggests.
        data: See :func:`mirrormargin.training.train_model`.
        folder: See there: None for one that is named after the configuration.
        **options: More of its arguments.

    Returns:
        Of the selected epoch what its task is judged by, such as the accuracy in %, or the loss of
        a language model.

    Raises:
        TrainingError: If the study looks for the wrong direction.
        TrialPruned: If the trial is not worth more steps.
    """
    column = f"validation_{config.task.measure}"
    _check_direction(trial, config)
    home = TrainingFolder.choose(config) if folder is None else TrainingFolder(folder)
    trial.set_user_attr("folder", str(home.path))
    reported = 0

    def report(step: int, num_steps: int, found: dict[str, Any]) -> None:
        nonlocal reported
        ended = found["epoch"] - 1
        if ended > reported:
            reported = ended
            trial.report(found[column], ended)
            if trial.should_prune():
                raise TrialPruned(f"pruned after {ended} of {config.epochs} epochs")

    try:
        training = train_model(config, data, home.path, on_step=report, **options)
    except DivergedError as error:
        raise TrialPruned(str(error)) from error
    return training.epochs[training.selected_epoch - 1][column]


def _check_direction(trial: BaseTrial, config: TrainingConfig) -> None:
    """Trials that are not of a study, such as a ``FixedTrial``, have no direction."""
    study = getattr(trial, "study", None)
    if study is None:
        return
    is_up = config.task.is_larger_better
    right = StudyDirection.MAXIMIZE if is_up else StudyDirection.MINIMIZE
    if study.directions != [right]:
        name = right.name.lower()
        raise TrainingError(
            f"{config.name} is judged by {config.task.measure}, and the study's direction is"
            f" {', '.join(one.name.lower() for one in study.directions)}: make it with"
            f' optuna.create_study(direction="{name}")'
        )
