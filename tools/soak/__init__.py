"""Try to break the product: thousands of random mistreatments, each of which must end well."""
