// The options of tandemctl samples.
#pragma once

#include <string>

#include "controller/cli/reading_commands.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tandem {

// A check of CLI11 for the number of a step: the message for a text that is none; "": it is one.
std::string IsStep(const std::string& text);

// `options` must outlive parsing.
void AddSamplesOptions(CLI::App* samples, SamplesOptions& options);

}  // namespace tandem
