#include "trainer_worker/shard/give_back.h"

#include <string>

#include "common/base/log.h"

namespace tandem {

absl::Status GivenBack(const absl::Status& released) {
  if (!absl::IsFailedPrecondition(released)) return released;
  LogWarn("{}", std::string(released.message()));
  return absl::OkStatus();
}

}  // namespace tandem
