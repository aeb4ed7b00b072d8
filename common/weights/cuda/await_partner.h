// Waiting for what the other process of a pair has put on its device.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/device/cuda/cuda_api.h"
#include "common/weights/pair_link.h"

namespace tandem {

// In the words of an error: "the rollout died before its GPU read slot 1".
struct PartnerWork {
  const char* partner;  // who does it
  std::string what;     // in the past tense
  const char* remedy;   // where it is dead
};

// Waits until `event`, which the partner records, has happened: mostly it has. It does so on the
// host, and no stream waits for such an event: the manual does not say what becomes of one whose
// process is killed before it happens, and a stream that waits for it may never go on.
// Unavailable: the partner is gone. DeadlineExceeded: it is there, and needs longer than
// `link.timeout`. Otherwise what the driver says.
absl::Status AwaitPartner(CudaApi& api,
                          CudaEvent event,
                          const PairLink& link,
                          const PartnerWork& work);

}  // namespace tandem
