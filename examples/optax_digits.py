"""Train attention in JAX on scikit-learn's digits, and keep a twentieth of its weights."""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mirrormargin.integrations.optax import k_sparse, mirror_adam

images, labels = load_digits(return_X_y=True)
tokens = images.reshape(-1, 8, 8) / 8 - 1  # one for each row of pixels
x, x_test, y, y_test = map(jnp.asarray, train_test_split(tokens, labels, random_state=0))
shapes = {"embed": (8, 48), "position": (8, 48), "key_query": (48, 48), "value": (48, 48)}
draw = jax.nn.initializers.lecun_normal()
w = {name: draw(jax.random.key(1), shape) for name, shape in shapes.items()}
w["head"] = draw(jax.random.key(2), (8 * 48, 10))


def find_logits(w, x):
    x = x @ w["embed"] + w["position"]
    attention = jax.nn.softmax(x @ w["key_query"] @ x.swapaxes(1, 2) / 48**0.5)
    return jnp.tanh(x + attention @ x @ w["value"]).reshape(len(x), -1) @ w["head"]


@jax.jit
def step(w, state, x, y):
    entropy = optax.softmax_cross_entropy_with_integer_labels
    grads = jax.grad(lambda w: entropy(find_logits(w, x), y).mean())(w)
    updates, state = optimizer.update(grads, state, w)
    return optax.apply_updates(w, updates), state


rising = optax.polynomial_schedule(0.0, 0.95, power=3, transition_steps=500)
optimizer = optax.chain(mirror_adam(3e-3, p=1.5), k_sparse(rising))
state = optimizer.init(w)
for batch in jax.random.randint(jax.random.key(3), (800, 64), 0, len(x)):
    w, state = step(w, state, x[batch], y[batch])
right = (find_logits(w, x_test).argmax(axis=1) == y_test).mean()
print(f"{right:.1%} right with {sum(map(jnp.count_nonzero, w.values()))} of 9216 weights")
