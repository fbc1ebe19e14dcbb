"""What things cost, measured side by side: CAF against MiB, and every method against fine-tuning."""
