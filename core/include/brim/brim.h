/* The whole SDK. Plugins include this file, or the headers that they need. */
#ifndef BRIM_BRIM_H
#define BRIM_BRIM_H
#include "brim/augment.h"
#include "brim/backend.h"
#include "brim/code8.h"
#include "brim/comm.h"
#include "brim/dataset.h"
#include "brim/formula.h"
#include "brim/host.h"
#include "brim/ledger.h"
#include "brim/loss.h"
#include "brim/memory.h"
#include "brim/model.h"
#include "brim/ops.h"
#include "brim/optimizer.h"
#include "brim/plugin.h"
#include "brim/policy.h"
#include "brim/random.h"
#include "brim/schedule.h"
#include "brim/selector.h"
#include "brim/status.h"
#include "brim/tensor.h"
#endif
