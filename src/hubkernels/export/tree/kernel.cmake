# One object library a table of build.toml, so that its flags reach its sources only, and a library of all of them.
set(CMAKE_CXX_FLAGS_RELEASE "") # the flags of every source are in VARIANT_FLAGS
set(CMAKE_SKIP_RPATH ON) # torch is loaded before, and the client's artifacts have none
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CUDA_ARCHITECTURES OFF) # each section has its own
set(OPS_NAME "_${PYTHON_NAME}_${BACKEND}_${UNIQUE_ID}")

if(BACKEND STREQUAL "cuda")
  enable_language(CUDA)
  set(device CUDA)
elseif(BACKEND STREQUAL "rocm")
  set(CMAKE_HIP_ARCHITECTURES OFF)
  enable_language(HIP)
  set(device HIP)
elseif(BACKEND STREQUAL "xpu")
  list(APPEND VARIANT_FLAGS -fsycl)
  list(APPEND LINK_FLAGS -fsycl)
endif()
set(backend_version "${TORCH_BACKEND_VERSION}")
if(NOT backend_version)
  set(backend_version "${CMAKE_CUDA_COMPILER_VERSION}") # a torch without CUDA says none
endif()
string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*$" "\\1\\2" BACKEND_DIGITS "${backend_version}")
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND VARIANT_FLAGS -O0 -g -UNDEBUG)
  list(APPEND DEVICE_VARIANT_FLAGS -O0 -g -UNDEBUG)
endif()

# nvcc takes flags of the language itself, and hands on the others.
if(BACKEND STREQUAL "cuda")
  list(TRANSFORM DEVICE_VARIANT_FLAGS REPLACE "^(-[fmW].*)$" "-Xcompiler=\\1")
endif()

# kernel_section(NAME SOURCES file... [FLAGS flag...] [DEVICE_FLAGS flag...])
function(kernel_section name)
  cmake_parse_arguments(PARSE_ARGV 1 section "" "" "SOURCES;FLAGS;DEVICE_FLAGS")
  set(common "-DTORCH_EXTENSION_NAME=${OPS_NAME}" "-I${CMAKE_CURRENT_SOURCE_DIR}/cmake/include")
  list(TRANSFORM section_SOURCES PREPEND "${KERNEL_DIR}/")
  add_library(${name} OBJECT ${section_SOURCES})
  target_include_directories(${name} SYSTEM PRIVATE ${TORCH_INCLUDE} ${PYTHON_INCLUDE})
  set(flags ${VARIANT_FLAGS} ${section_FLAGS} ${common})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  if(device)
    set(flags ${DEVICE_VARIANT_FLAGS} ${section_DEVICE_FLAGS} ${common})
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:${device}>:${flags}>")
    if(device STREQUAL "HIP")
      set(hip ${section_SOURCES})
      list(FILTER hip INCLUDE REGEX "\\.(cu|hip)$")
      set_source_files_properties(${hip} PROPERTIES LANGUAGE HIP)
    endif()
  elseif(BACKEND STREQUAL "xpu")
    target_compile_options(${name} PRIVATE ${section_DEVICE_FLAGS})
  endif()
  set_property(GLOBAL APPEND PROPERTY KERNEL_OBJECTS "$<TARGET_OBJECTS:${name}>")
endfunction()

# kernel_library(TAG variant LIBRARIES name...): the module, and `cmake --install` puts it where the client loads it.
function(kernel_library)
  cmake_parse_arguments(PARSE_ARGV 0 kernel "" "TAG" "LIBRARIES;SHIPPED")
  get_property(objects GLOBAL PROPERTY KERNEL_OBJECTS)
  add_library(${OPS_NAME} MODULE ${objects})
  set_target_properties(${OPS_NAME} PROPERTIES PREFIX "" SUFFIX ".abi3.so" LINKER_LANGUAGE CXX)
  target_link_options(${OPS_NAME} PRIVATE ${LINK_FLAGS})
  target_link_directories(${OPS_NAME} PRIVATE "${TORCH_LIB}")
  target_link_libraries(${OPS_NAME} PRIVATE ${kernel_LIBRARIES})

  set(made "${CMAKE_BINARY_DIR}")
  if(CMAKE_LIBRARY_OUTPUT_DIRECTORY)
    set(made "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  endif()
  configure_file(cmake/_ops.py.in "${made}/_ops.py" @ONLY)
  if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
    set_property(CACHE CMAKE_INSTALL_PREFIX PROPERTY VALUE "${KERNEL_DIR}/build/${PROJECT_NAME}")
  endif()
  set(patterns ${kernel_SHIPPED})
  list(TRANSFORM patterns PREPEND "PATTERN;*.")
  install(
    DIRECTORY "${KERNEL_DIR}/torch-ext/${PYTHON_NAME}/"
    DESTINATION "${kernel_TAG}"
    FILES_MATCHING ${patterns}
    PATTERN _ops.py EXCLUDE
    PATTERN __pycache__ EXCLUDE)
  install(FILES "${made}/_ops.py" DESTINATION "${kernel_TAG}")
  install(FILES "cmake/metadata-${BACKEND}.json" DESTINATION "${kernel_TAG}" RENAME metadata.json)
  install(TARGETS ${OPS_NAME} LIBRARY DESTINATION "${kernel_TAG}")
  add_custom_target(
    local_install
    COMMAND "${CMAKE_COMMAND}" --install "${CMAKE_BINARY_DIR}"
    DEPENDS ${OPS_NAME}
    VERBATIM)
endfunction()

# device_arch_flags(OUT arch...): capabilities ("9.0a", "12.0+PTX") or gfx names as flags of the device compiler.
function(device_arch_flags out)
  set(archs ${ARGN})
  if(NOT archs)
    set(archs ${DEVICE_ARCHS})
  endif()
  if(NOT archs)
    message(FATAL_ERROR "no device here to build for: name some, for example -DDEVICE_ARCHS=\"9.0;12.0+PTX\"")
  endif()
  foreach(arch IN LISTS archs)
    if(BACKEND STREQUAL "rocm")
      list(APPEND flags "--offload-arch=${arch}")
      continue()
    endif()
    string(REGEX REPLACE "\\.|\\+PTX" "" digits "${arch}")
    list(APPEND flags "-gencode=arch=compute_${digits},code=sm_${digits}")
    if(arch MATCHES "\\+PTX$")
      list(APPEND flags "-gencode=arch=compute_${digits},code=compute_${digits}")
    endif()
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()
