// What a trainer announces when it opens a weight update on its rollout.
#pragma once

#include "common/weights/manifest.h"
#include "common/weights/weight_transport.h"

namespace tandem {

struct UpdateRequest {
  UpdateId id;
  SlotShape slots;
  Manifest manifest;
  bool scramble = false;                    // fill the weights with NaN first
  UpdateScope scope = UpdateScope::kWhole;  // the tensors of the manifest
};

}  // namespace tandem
