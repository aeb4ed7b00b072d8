// From the controller's reply to the trainer's options. Pure.
#pragma once

#include <absl/status/statusor.h>

#include "tandem/v1/controller.pb.h"
#include "trainer_worker/trainer.h"

namespace tandem {

// InvalidArgument names the key of a value that this program does not know.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const v1::RegisterResponse& registration,
                                                  int rank);

}  // namespace tandem
