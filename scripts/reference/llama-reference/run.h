// One greedy generation.
#pragma once

#include "engine.h"

Json run(Engine & engine, const Fields & request);
