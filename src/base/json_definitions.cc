// Boost.JSON's definitions, compiled once.
#include <boost/json/src.hpp>
