"""The interior point once more, compiled, for many small problems."""
