// Workers' ledgers of a phase as JSON text, for a column of the store.
#pragma once

#include <string>
#include <vector>

#include "controller/store/records.h"

namespace tandem {

std::string WorkersToJson(const std::vector<WorkerMemory>& workers);
// Empty where the text is none of WorkersToJson's.
std::vector<WorkerMemory> WorkersFromJson(const std::string& text);

}  // namespace tandem
