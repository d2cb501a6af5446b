from veilboost.config import TrainingConfig as TrainingConfig
from veilboost.data.datasets import list_datasets as list_datasets
from veilboost.data.datasets import load_dataset as load_dataset
from veilboost.data.datasets import make_demo_data as make_demo_data
from veilboost.data.load import load_table as load_table
from veilboost.errors import VeilBoostError as VeilBoostError
from veilboost.estimators.horizontal import HorizontalClassifier as HorizontalClassifier
from veilboost.estimators.horizontal import HorizontalRegressor as HorizontalRegressor
from veilboost.estimators.vertical import VerticalClassifier as VerticalClassifier
from veilboost.estimators.vertical import VerticalRegressor as VerticalRegressor
from veilboost.model.export import export_xgboost as export_xgboost
from veilboost.model.joined import join as join
from veilboost.model.store import load_model as load_model
from veilboost.model.store import save_model as save_model
from veilboost.party.federation import Federation as Federation
from veilboost.party.simulation import simulate_training as simulate_training

__version__: str
