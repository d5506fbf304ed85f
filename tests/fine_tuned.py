"""A small base and what somebody made of it: a few weights far from where they were."""

import copy

import torch
from torch import nn

__all__ = ["TiedModel", "bits", "fine_tune", "make_base"]


class TiedModel(nn.Module):
    """An embedding that is the output layer too, a norm with a buffer of integers, a head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight
        self.head = nn.Linear(4, 2)

    def forward(self, ids):
        hidden = torch.tanh(self.hidden(self.embedding(ids).mean(dim=1)))
        return self.head(self.norm(hidden)), self.output(hidden)


def make_base(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return TiedModel().to(dtype).eval()


def fine_tune(base, seed=1, size=0.01):
    """A copy in which all weights have moved, a few of them far."""
    torch.manual_seed(seed)
    model = copy.deepcopy(base)
    with torch.no_grad():
        for weight in model.parameters():
            far = torch.rand(weight.shape) < 0.2
            change = torch.randn(weight.shape) * torch.where(far, 1.0, size)
            weight.add_(change.to(weight.dtype))
    return model


def bits(model):
    """Every parameter and buffer as bytes."""
    return {
        name: one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, one in model.state_dict().items()
    }
