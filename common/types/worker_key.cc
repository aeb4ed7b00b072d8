#include "common/types/worker_key.h"

namespace tandem {

std::string RoleName(WorkerRole role) {
  return role == WorkerRole::kTrainer ? "trainer" : "rollout";
}

}  // namespace tandem
