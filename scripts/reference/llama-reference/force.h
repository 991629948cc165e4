// Given tokens in place of chosen ones (teacher forcing).
#pragma once

#include "engine.h"

Json force(Engine & engine, const Fields & request);
