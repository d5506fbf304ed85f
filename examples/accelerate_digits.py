"""Train on digits with Accelerate, on any number of processes, and resume from a checkpoint.

python examples/accelerate_digits.py, or accelerate launch examples/accelerate_digits.py
"""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mirrormargin as mm

accelerator = Accelerator()
torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = images.float() / 8 - 1
batches = DataLoader(TensorDataset(images[:1300], labels[:1300]), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = mm.MirrorAdam(mm.mirror_groups(model, p=1.25), lr=5e-3)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)

epochs, half = 20, 10
schedule = mm.SparsitySchedule(optimizer, share=0.9, num_steps=epochs * len(batches))
accelerator.register_for_checkpointing(schedule)  # after prepare, before a checkpoint is loaded
for epoch in range(epochs):
    if epoch == half:
        accelerator.save_state("checkpoint")  # and accelerator.load_state("checkpoint") to resume
    for batch, target in batches:
        accelerator.backward(nn.functional.cross_entropy(model(batch), target))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

removed = schedule.removed_share  # where ranks share the weights, all of them have to ask
right = (model(images[1300:].to(accelerator.device)).argmax(dim=1).cpu() == labels[1300:]).float()
accelerator.print(f"{removed:.1%} of the weights removed, {right.mean():.1%} of new digits right")
