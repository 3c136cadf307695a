#include "program/step_scalars.h"
