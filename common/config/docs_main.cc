// Prints docs/config.md: build/bin/tandem-config-docs > docs/config.md
#include <iostream>

#include "common/config/config.h"

int main() {
  std::cout << tandem::ConfigMarkdown();
  return std::cout.good() ? 0 : 1;
}
