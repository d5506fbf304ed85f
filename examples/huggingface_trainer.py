"""Train a BERT with Hugging Face's Trainer so that nine tenths of its matrices are zero."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from mirrormargin.integrations.huggingface import (
    SparsityCallback,
    mirror_defaults,
    mirror_optimizer,
)

torch.manual_seed(0)
# Random weights; BertForSequenceClassification.from_pretrained("bert-base-uncased") has real ones.
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=20, intermediate_size=64, hidden_dropout_prob=0.0, **sizes)
model = BertForSequenceClassification(config)
words = torch.randint(5, 20, (512, 8))
labels = (words == 7).any(dim=1).long()  # the task: does this word occur?
rows = [{"input_ids": w, "labels": label} for w, label in zip(words, labels, strict=True)]

settings = {"per_device_train_batch_size": 32, "max_steps": 150, "report_to": "none"}
sparsity = SparsityCallback(0.9)  # checkpoints hold it; trainer.train(resume_from_checkpoint=True)
trainer = Trainer(
    model=model,
    args=TrainingArguments("trainer", **settings, **mirror_defaults()),
    train_dataset=rows,
    optimizer_cls_and_kwargs=mirror_optimizer(p=1.25, lr=1e-2),
    callbacks=[sparsity],
)
trainer.train()

model.eval()
right = (model(words.to(model.device)).logits.argmax(dim=1).cpu() == labels).float().mean()
print(f"{sparsity.removed_share:.1%} of the weights removed, {right:.1%} of the texts right")
