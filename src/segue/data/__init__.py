"""Images and masks: data sets, class index, step data, transforms."""
