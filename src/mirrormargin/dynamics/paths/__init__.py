"""How regularization paths are found: minimisers on lp balls, followed from radius to radius."""
