"""How few numbers does a fine-tuning need? Every method on every task, with records and tables.

    python -m tools.delta_trainings [--tasks sst2 mrpc] [--methods center lora-8] [--workers 1]
    python -m tools.delta_trainings --list
    python -m tools.delta_trainings --store

Each method's settings are tuned on SST-2 with one seed, by the score on validation data at 10,000
numbers, and then frozen: the best ones are trained on every task and seed and scored on test data.
A training is one line of ``records/deltas.jsonl`` and is not made again; the tables and figures are
drawn from these lines.

trainings   what is trained: methods, grids, tasks, seeds
methods     how each method trains, and what it stores
peft_methods   those of the library peft
run         one training, from data to scores
table       what claims and figures read
"""
