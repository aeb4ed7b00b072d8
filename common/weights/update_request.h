// What a trainer announces when it opens a weight update on its rollout.
#pragma once

#include <cstdint>

#include "common/weights/manifest.h"
#include "common/weights/slot_stream.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// The place of a rollout in the chain that an update goes along. The default: there is no chain.
struct ChainPlace {
  bool from_rollout = false;  // the rollout before it may be who sends the slots
  StreamOffer next;           // where it passes them on; empty: it is the last one
  int behind = 0;             // rollouts behind it
};

struct UpdateRequest {
  UpdateId id;
  SlotShape slots;
  Manifest manifest;
  bool scramble = false;                    // fill the weights with NaN first
  UpdateScope scope = UpdateScope::kWhole;  // the tensors of the manifest
  // Of the trainers' group. A rollout refuses a group that is older than one that it has heard of.
  int64_t group_generation = 0;
  bool over_tcp = false;  // the rollout makes the slots, and their contents come over TCP
  ChainPlace chain;
};

}  // namespace tandem
