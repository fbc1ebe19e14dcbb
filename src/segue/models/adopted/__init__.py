"""Networks that Segue did not build: found by proof (find), grown (grow), run behind the common interface
(network), and built again from words (sources)."""
