"""The part of Segue that needs no torch: recipes, scenarios, metrics, records, plug-ins."""
