"""Train on digits with Lightning so that nine tenths of the matrices are zero."""

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mirrormargin as mm
from mirrormargin.integrations.lightning import SparsityCallback


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch):
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return mm.MirrorAdam(mm.mirror_groups(self, p=1.25), lr=5e-3)


torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = images.float() / 8 - 1
batches = DataLoader(TensorDataset(images[:1300], labels[:1300]), batch_size=50, shuffle=True)
model = Digits()
sparsity = SparsityCallback(0.9)  # checkpoints hold it: trainer.fit(..., ckpt_path=...)
trainer = Trainer(max_epochs=20, callbacks=[sparsity], logger=False, enable_progress_bar=False)
trainer.fit(model, batches)

right = (model.cpu().layers(images[1300:]).argmax(dim=1) == labels[1300:]).float().mean()
print(f"{sparsity.removed_share:.1%} of the weights removed, {right:.1%} of new digits right")
