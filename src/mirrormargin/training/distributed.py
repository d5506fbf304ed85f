r"""Several processes train one model: how they meet, and what they tell each other.

torchrun starts W processes, the ranks. All go through the same loop on the same data, and each
computes the gradient of its own rows of every batch. With the loss of a rank scaled to

    L_r = W * (sum of the losses of its rows) / (answers in the whole batch)

(or W * sum, for summed losses), the mean over ranks that DDP and FSDP take of its gradient is the
gradient of the whole batch, however unevenly the rows are shared. ``ddp`` keeps all weights on
every rank, ``fsdp`` a shard of each tensor (FSDP2: rows of a DTensor).

Rank 0 writes, so whatever a file needs is gathered there, and what a file says goes out from there.
A rank that dies closes its connections: the others then raise a RankError instead of waiting.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mirrormargin.errors import MirrorMarginError, RankError, TrainingError
from mirrormargin.models.batch_rows import take_rows
from mirrormargin.optim.shards import get_local, is_sharded
from mirrormargin.training.config import Powerpropagation, TrainingConfig
from mirrormargin.training.launch import Launch, Parallel, choose_parallel, find_launch

if TYPE_CHECKING:
    from mirrormargin.data import DataSet

__all__ = ["Parts", "Ranks", "check_shared", "get_whole", "join_ranks"]

TIMEOUT = timedelta(minutes=10)  # of a rank that lives, but does not answer

T = TypeVar("T")
Parts = dict[str, dict[str, Tensor]]


class Ranks:
    """One process, and what it would ask others: the base of those that are several.

    Attributes:
        rank: Its number.
        count: How many there are.
        parallel: How they share the work; None for one process.
        device: Where it computes.
    """

    rank, count = 0, 1
    parallel: Parallel | None = None

    def __init__(self, device: str) -> None:
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this is the one that talks and writes."""
        return self.rank == 0

    # -- the model and its gradients

    def place(self, model: nn.Module) -> nn.Module:
        """The model where it is trained; its parameters may be replaced by shards."""
        return model.to(self.device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """What is called instead of a placed model so that gradients are those of all ranks."""
        return model

    def find_rows(self, size: int) -> slice:
        """The rows of a batch that are this rank's: as many as any other's, give or take one."""
        return slice(size * self.rank // self.count, size * (self.rank + 1) // self.count)

    @contextmanager
    def take_rows(self, inputs: Tensor) -> Iterator[Tensor]:
        """The inputs of this rank's rows; in here a model draws its random numbers."""
        yield inputs

    def clip(self, model: nn.Module, most: float) -> None:
        """Scale the gradient down to a norm of at most ``most``, over all parameters."""
        nn.utils.clip_grad_norm_(model.parameters(), most)

    # -- what ranks tell each other

    def add(self, *values: float) -> list[float]:
        """Sums over the ranks."""
        return list(values)

    def add_shards(self, value: float) -> float:
        """The sum of what was counted on this rank's shards, or on whole tensors."""
        return value

    def agree(self, *flags: bool) -> list[bool]:
        """Whether a flag is true on any rank."""
        return list(flags)

    def gather(self, value: T) -> list[T]:
        """What every rank has, in their order."""
        return [value]

    def broadcast(self, value: T) -> T:
        """What the first rank has."""
        return value

    # -- whole tensors on the first rank

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors, whole, on the first rank; nothing on others."""
        return dict(tensors)

    def spread(self, parts: Parts, find_like: Callable[[str, str], Tensor | None]) -> Parts:
        """The first rank's tensors on every rank, by part and name; inverse of :meth:`collect`.

        Args:
            parts: Of no meaning on other ranks.
            find_like: A tensor of this rank that is sharded as the one of that part and name is
                going to be; None if it stays whole.
        """
        return {
            part: {name: tensor.to(self.device) for name, tensor in tensors.items()}
            for part, tensors in parts.items()
        }


class _Group(Ranks):
    """One of several processes; every method is called by all of them, in the same order."""

    def __init__(self, launch: Launch, parallel: Parallel, device: str) -> None:
        super().__init__(device)
        self.rank, self.count, self.parallel = launch.rank, launch.count, parallel
        self._draws_by_itself = False
        self._wrapped: Any = None

    def leave(self) -> None:
        """Let go of what DDP has in C++, before the process group is given up.

        Otherwise that may be the last to hold the group: its threads are then waited for by one
        that holds Python's lock, which they need too (the tests with killed ranks hang).
        """
        if self._wrapped is not None:
            self._wrapped.reducer = self._wrapped.logger = None
            self._wrapped = None

    def place(self, model: nn.Module) -> nn.Module:
        # Other libraries' models draw masks for the rows they see; see take_rows.
        self._draws_by_itself = any(
            isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()
        )
        if self.parallel == "fsdp":
            model.register_forward_hook(_copy_view)
            _shard(model, self.device, self.count)
        return model.to(self.device)

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.parallel == "fsdp":
            return model
        # Buffers are constants here, the same on every rank. The option has a new name in torch.
        known = inspect.signature(nn.parallel.DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: Any = {name: False}
        self._wrapped = nn.parallel.DistributedDataParallel(model, **options)
        return self._wrapped

    @contextmanager
    def take_rows(self, inputs: Tensor) -> Iterator[Tensor]:
        with take_rows(inputs, self.find_rows(len(inputs))) as own:
            if not self._draws_by_itself:
                yield own
                return
            # Each rank from a seed of its own, and all have the same random numbers afterwards.
            seed = int(torch.randint(2**62, ())) + self.rank
            devices = [torch.device(self.device)] if self.device.startswith("cuda") else []
            with torch.random.fork_rng(devices):
                torch.manual_seed(seed)
                yield own

    def clip(self, model: nn.Module, most: float) -> None:
        if self.parallel == "ddp":  # every rank has the whole gradient
            super().clip(model, most)
            return
        grads = [get_local(param.grad) for param in model.parameters() if param.grad is not None]
        total = torch.stack([grad.norm().double().square() for grad in grads]).sum()
        dist.all_reduce(total)  # one for all tensors
        factor = (most / (total.sqrt() + 1e-6)).clamp(max=1.0)  # as torch has it
        for grad in grads:
            grad.mul_(factor)

    def add(self, *values: float) -> list[float]:
        return self._reduce(values, dist.ReduceOp.SUM)

    def add_shards(self, value: float) -> float:
        return self.add(value)[0] if self.parallel == "fsdp" else value

    def agree(self, *flags: bool) -> list[bool]:
        return [value > 0 for value in self._reduce(flags, dist.ReduceOp.MAX)]

    def _reduce(self, values: Sequence[float], operation: Any) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def gather(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def broadcast(self, value: T) -> T:
        found = [value]
        dist.broadcast_object_list(found, 0)
        return found[0]

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        whole = {}
        for name, tensor in tensors.items():  # one by one: no rank but the first holds all
            tensor = get_whole(tensor)
            if self.is_first:
                whole[name] = tensor.cpu() if self.parallel == "fsdp" else tensor
        return whole

    def spread(self, parts: Parts, find_like: Callable[[str, str], Tensor | None]) -> Parts:
        forms = self.broadcast(
            [
                (part, name, tensor.shape, tensor.dtype)
                for part, tensors in parts.items()
                for name, tensor in tensors.items()
            ]
        )
        found: Parts = {}
        for part, name, shape, dtype in forms:
            if self.is_first:
                tensor = parts[part][name].to(self.device).contiguous()
            else:
                tensor = torch.empty(shape, dtype=dtype, device=self.device)
            dist.broadcast(tensor.view(-1).view(torch.uint8), 0)  # of any type
            like = find_like(part, name)
            if like is not None and is_sharded(like) and like.shape == shape:
                tensor = _cut(tensor, like)
            found.setdefault(part, {})[name] = tensor
        return found


@contextmanager
def join_ranks(parallel: Parallel | None, device: str) -> Iterator[Ranks]:
    """Meet the other ranks, until the end of the block; one process for None.

    Within a block that has joined them already, or where torch's process group is there, that group
    is used and left as it is.

    Raises:
        TrainingError: If this process was not started by torchrun, or has no device.
        RankError: If another rank cannot be met, ends or does not answer.
    """
    if parallel is None:
        yield Ranks(device)
        return
    choose_parallel(parallel)
    launch = find_launch()
    assert launch is not None
    if device == "cuda":
        if launch.local_rank >= torch.cuda.device_count():
            raise TrainingError(
                f"rank {launch.rank} is number {launch.local_rank} of its machine, which has"
                f" {torch.cuda.device_count()} CUDA devices: start as many ranks as there are"
            )
        device = f"cuda:{launch.local_rank}"
        torch.cuda.set_device(device)
    is_there = dist.is_initialized()
    if not is_there:
        try:
            _meet(launch, "nccl" if device.startswith("cuda") else "gloo")
        except RuntimeError as error:
            raise RankError(f"rank {launch.rank} cannot meet the others: {error}") from error
    ranks = _Group(launch, parallel, device)
    try:
        yield ranks
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise RankError(
            f"rank {launch.rank} has lost another one, which ended or does not answer: torchrun"
            " says which one failed first; the same command resumes from the last checkpoint"
        ) from error
    finally:
        ranks.leave()
        if not is_there and dist.is_initialized():
            dist.destroy_process_group()


def _meet(launch: Launch, backend: str) -> None:
    """Make torch's process group, from addresses that this attempt alone has written.

    Torchrun's store outlives a restart: a quick rank would read the address of one that was killed.
    """
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, count = next(rendezvous("env://", timeout=TIMEOUT))
    store = PrefixStore(f"attempt-{launch.restarts}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)


def check_shared(config: TrainingConfig, data: DataSet, ranks: Ranks) -> None:
    """Raise a TrainingError unless these ranks can train this together."""
    if ranks.count > min(config.batch_size, len(data.train)):
        raise TrainingError(
            f"batches of {min(config.batch_size, len(data.train))} cannot be shared by"
            f" {ranks.count} ranks: start fewer, or give a larger batch_size"
        )
    found = ranks.gather((config.digest(), data.sha256))
    if found.count(found[0]) < len(found):
        raise TrainingError(
            "the ranks have different settings or data: start all of them with the same command, on"
            " the same files"
        )
    if ranks.parallel == "fsdp":
        _refuse_shards(config)


def _refuse_shards(config: TrainingConfig) -> None:
    """What is not the same on shards as on whole tensors."""
    refused = {
        "Powerpropagation": isinstance(config.sparsifier, Powerpropagation),
        "compile": config.compile,
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise TrainingError(f"{name} is not supported with fsdp: train with ddp")


def _is_lost(error: RuntimeError) -> bool:
    """Whether this is how torch says that another rank is gone."""
    if isinstance(error, MirrorMarginError):
        return False
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _shard(model: nn.Module, device: str, count: int) -> None:
    """Shard a model in place: every block, and what is left, is gathered when it computes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(torch.device(device).type, (count,))
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for module in [block for one in lists for block in one] + [model]:
        fully_shard(module, mesh=mesh)
        if hasattr(module, "attention") and not isinstance(module.attention, nn.Module):
            register_fsdp_forward_method(module, "attention")


def _copy_view(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """FSDP warns of models that return a view, because it loses those that are changed in place."""
    return output.clone() if output._is_view() else output


def get_whole(tensor: Any) -> Tensor:
    """All of a tensor, for which all ranks ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def _cut(whole: Tensor, like: Any) -> Tensor:
    """This rank's shard of a tensor that it has whole."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
