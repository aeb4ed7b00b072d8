// The assembly of a training run.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

namespace tandem {

class Assembly;
struct AssemblyOptions;

// Opens the run's records, checkpoints and carried groups in the run directory, which the caller
// has locked, and chooses the modes of the train loop. Errors as for Assembly::Create.
absl::StatusOr<std::unique_ptr<Assembly>> MakeTrainAssembly(const AssemblyOptions& options);

}  // namespace tandem
