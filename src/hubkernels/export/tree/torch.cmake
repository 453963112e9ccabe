# What torch is here, and for which backend to build. Before project(): SYCL has a C++ compiler of its own.
if(NOT Python3_EXECUTABLE)
  find_program(Python3_EXECUTABLE NAMES python3 python REQUIRED)
endif()
set(facts "${CMAKE_BINARY_DIR}/torch_facts.cmake")
execute_process(
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/torch_facts.py"
  OUTPUT_FILE "${facts}"
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${Python3_EXECUTABLE} cannot import torch: choose another with -DPython3_EXECUTABLE=")
endif()
include("${facts}")
set(BACKEND "${TORCH_BACKEND}" CACHE STRING "Backend to build for; by default that of torch")
set(DEVICE_ARCHS "${DEVICE_ARCHS}" CACHE STRING "Devices for sections that name none, as build.toml spells them")

if(BACKEND STREQUAL "xpu" AND NOT DEFINED CMAKE_CXX_COMPILER)
  find_program(ICPX icpx)
  if(NOT ICPX)
    message(FATAL_ERROR "backend xpu needs icpx of Intel oneAPI on PATH, or -DCMAKE_CXX_COMPILER=")
  endif()
  set(CMAKE_CXX_COMPILER "${ICPX}")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
