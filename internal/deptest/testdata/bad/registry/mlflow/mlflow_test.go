package mlflow_test

import _ "example.com/bad/warmup/coldstart"
