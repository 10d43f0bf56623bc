/* A member of a process group of Corosync (CPG), with agreed messages. */
#include <corosync/cpg.h>
#include <sys/uio.h>

#include "member.h"

static cpg_handle_t handle;

static void on_delivery(cpg_handle_t unused, const struct cpg_name *group, uint32_t node, uint32_t process, void *bytes,
			size_t length)
{
	handle_message(bytes, length);
}

static void on_view(cpg_handle_t unused, const struct cpg_name *group, const struct cpg_address *members, size_t count,
		    const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
		    size_t joined_count)
{
	static int is_complete;
	if (count == member.members && !is_complete++)
		start_load();
}

static void send_message(const void *bytes, size_t length)
{
	struct iovec part = {(void *)bytes, length};
	cs_error_t error;
	while ((error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1)) == CS_ERR_TRY_AGAIN)
		pause_ns(50000);
	if (error != CS_OK)
		fail("cpg_mcast_joined", error);
}

int main(int count, char **arguments)
{
	static cpg_callbacks_t callbacks = {on_delivery, on_view};
	struct cpg_name group = {5, "bench"};
	cs_error_t error;
	if (count != 6)
		return 2;
	read_arguments(arguments);
	for (int attempt = 0; (error = cpg_initialize(&handle, &callbacks)) != CS_OK && attempt < 200; attempt++)
		pause_ns(100000000);
	if (error != CS_OK)
		fail("cpg_initialize", error);
	while ((error = cpg_join(handle, &group)) == CS_ERR_TRY_AGAIN)
		pause_ns(100000000);
	if (error != CS_OK)
		fail("cpg_join", error);
	error = cpg_dispatch(handle, CS_DISPATCH_BLOCKING);
	fail("cpg_dispatch", error);
}
