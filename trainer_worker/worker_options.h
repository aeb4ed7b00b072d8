// From the controller's reply to the trainer's options. Pure.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "tandem/v1/controller.pb.h"
#include "trainer_worker/trainer.h"

namespace tandem {

// Where a worker listens if no address is given: beside the controller's Unix socket, else any free
// port of 127.0.0.1.
std::string DefaultListenAddress(const std::string& listen,
                                 const std::string& controller,
                                 int rank);

// InvalidArgument names the key of a value that this program does not know.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const v1::RegisterResponse& registration,
                                                  int rank);

}  // namespace tandem
