// What a plan says about the bytes that cross between workers.
#pragma once

#include <string>

#include "controller/plan/transfer_plan.h"

namespace tandem {

// A table of the routes of weights and, of trainers on several hosts, one of what they exchange;
// then what the times rest on, and how to give what is missing. Many routes are counted, not
// listed.
std::string TransferText(const TransferPlan& plan);
// "257 MiB to each of 2 rollouts after a step, over shm", for a line of its own.
std::string TransferSummary(const TransferPlan& plan);

}  // namespace tandem
