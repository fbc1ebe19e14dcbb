"""What makes networks faster or smaller without changing what they compute."""
