"""Steps of weights on two devices, next to those of whole ones: for test_optax_contract.py."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mirrormargin.integrations.optax import k_sparse, mirror_adam, mirror_descent

LAYOUTS = {"rows": PartitionSpec("half", None), "columns": PartitionSpec(None, "half")}
OPTIMIZERS = (
    mirror_adam(0.01, 1.1, weight_decay=0.1, scale="rms"),
    mirror_descent(0.01, 1.5, step_rule="normalized"),
    optax.chain(mirror_adam(0.01, 1.1), k_sparse(0.5)),
)


def train(optimizer, weights):
    @jax.jit
    def step(weights, state):
        grads = jax.grad(lambda w: jnp.sum(jnp.sin(w["rows"] @ w["columns"].T) ** 2))(weights)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state

    state = jax.jit(optimizer.init)(weights)
    for _ in range(5):
        weights, state = step(weights, state)
    return weights


def main():
    mesh, rng = Mesh(np.array(jax.devices()), ("half",)), np.random.default_rng(0)
    whole = {name: jnp.asarray(rng.normal(size=(8, 6)), jnp.float32) for name in LAYOUTS}
    layouts = {name: NamedSharding(mesh, layout) for name, layout in LAYOUTS.items()}
    parts = {name: jax.device_put(w, layouts[name]) for name, w in whole.items()}
    for optimizer in OPTIMIZERS:
        ours, others = train(optimizer, parts), train(optimizer, whole)
        for name, layout in layouts.items():
            assert ours[name].sharding.is_equivalent_to(layout, 2), ours[name].sharding
            np.testing.assert_allclose(ours[name], others[name], rtol=1e-4, atol=1e-5)
    print(len(mesh.devices), "devices")


if __name__ == "__main__":
    main()
