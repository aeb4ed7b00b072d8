// The assembly of a weight check (weight_sync.check_only).
#pragma once

#include <memory>

#include <absl/status/statusor.h>

namespace tandem {

class Assembly;
struct AssemblyOptions;

// A check synchronizes the weights once, compares them and reports (controller/run/check_only.h).
// It has no train loop, and changes neither records nor checkpoints of the run directory, which the
// caller has locked. Errors as for Assembly::Create.
absl::StatusOr<std::unique_ptr<Assembly>> MakeCheckAssembly(const AssemblyOptions& options);

}  // namespace tandem
