"""One adapter per way to call a model; each implements ``tasks.ports.Provider`` and knows no prompt wording."""
