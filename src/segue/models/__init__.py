"""The segmentation network: encode -> fuse -> refine -> classify."""
