"""A forecast of a demand that repeats by day or week, and whether it has been better than the last value."""

from trimtab_models.forecast.back_test import Accuracy, Error
from trimtab_models.forecast.fit import Fitted, NoForecast, fit
from trimtab_models.forecast.seasonal import Seasonal, predict

__all__ = ["Accuracy", "Error", "Fitted", "NoForecast", "Seasonal", "fit", "predict"]
