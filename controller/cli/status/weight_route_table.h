// The ways of the weights in a run's status.
#pragma once

#include <string>

#include "tandem/v1/controller.pb.h"

namespace tandem {

// A row per route: bytes and time as planned beside those of the last sync. Empty where the
// controller tells of none.
std::string WeightRouteTable(const v1::GetStatusResponse& status);

}  // namespace tandem
