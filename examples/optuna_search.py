"""Search for p and the learning rate of a small ViT on digits, and end hopeless trials early."""

from collections import Counter

import optuna

from mirrormargin.integrations.optuna import train_trial
from mirrormargin.training import find_configuration, load_training_data

data = load_training_data(find_configuration("digits/tiny"))


def objective(trial):
    p = trial.suggest_float("p", 1.05, 2.5)
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    settings = {"optimizer.p": p, "optimizer.lr": lr, "epochs": 12}
    return train_trial(trial, find_configuration("digits/tiny", settings), data)


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=3),
)
study.optimize(objective, n_trials=10)
best, states = study.best_trial, Counter(trial.state.name for trial in study.trials)
print(f"pruned {states['PRUNED']} of {len(study.trials)} trials")
print(f"{best.value:.1f}% right on validation data with p = {best.params['p']:.2f}")
print(f"and lr = {best.params['lr']:.2g}, in {best.user_attrs['folder']}")
