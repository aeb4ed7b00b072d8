// YAML for people from a JSON document, in the order in which its keys were set.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tandem {

// One YAML document that reads as exactly `document`, with a line break at its end. Strings are
// plain where YAML cannot take them for something else, literal blocks where they have several
// lines, and otherwise in double quotes.
std::string YamlText(const nlohmann::ordered_json& document);

}  // namespace tandem
