"""CAF: Continual Attentive Fusion (Yang et al., IEEE TMM 2022): settings, method, memory of features."""

from segue.methods.caf.method import CAF

METHOD = CAF
