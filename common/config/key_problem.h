// What is wrong with settings that do not go together.
#pragma once

#include <string>
#include <vector>

namespace tandem {

struct KeyProblem {
  std::vector<std::string> keys;  // those a user would change
  std::string text;               // the reason and the remedy
};

}  // namespace tandem
