"""Fine-tune a BERT so that few weights change, and keep these in a file of a few kilobytes."""

import copy

import torch
from transformers import BertConfig, BertForSequenceClassification

import mirrormargin as mm

torch.manual_seed(0)
# Random weights; BertForSequenceClassification.from_pretrained("bert-base-uncased") has real ones.
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=20, intermediate_size=64, hidden_dropout_prob=0.0, **sizes)
base = BertForSequenceClassification(config).eval()
model = copy.deepcopy(base).requires_grad_(False)
for part in (model.bert.encoder, model.classifier):
    part.requires_grad_(True)
words = torch.randint(5, 20, (128, 8))
labels = (words == 7).any(dim=1).long()  # the task: does this word occur?

head = {"classifier.*": {"p": 2.0, "lr": 1e-2}}  # new in every task: it has no centre
groups = mm.mirror_groups(model, p=1.1, patterns=head, rest={"lr": 0.0}, center=True)
optimizer = mm.MirrorAdam(groups, lr=2e-2)  # in 60 steps u can grow to 1
for _ in range(60):
    optimizer.zero_grad()
    model(words, labels=labels).loss.backward()
    optimizer.step()

delta = mm.SparseDelta.extract(model, base, keep=1000, whole=["classifier.*"])
print(f"{delta}: {delta.save('task.safetensors'):,} bytes")
before = base(words).logits
delta = mm.SparseDelta.load("task.safetensors")
for when, change in (("with", delta.apply), ("without", delta.remove)):
    change(base)
    right = (base(words).logits.argmax(dim=1) == labels).float().mean()
    print(f"{right:.1%} right {when} the delta; of {labels.float().mean():.1%} in one class")
assert torch.equal(base(words).logits, before)
