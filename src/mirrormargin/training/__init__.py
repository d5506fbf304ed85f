"""Real training: one loop for every optimizer, evaluation, sparsity, pruning, token selection."""
