"""What did fine-tuning change? Sparse changes of a model: extracted, kept, applied, served."""
