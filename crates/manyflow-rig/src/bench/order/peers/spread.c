/* A member of a group of Spread, through its client library; the last argument is the service. */
#include <sp.h>

#include "member.h"

static mailbox box;
static service message_service;

static void send_message(const void *bytes, size_t length)
{
	int sent = SP_multicast(box, message_service, "bench", 0, (int)length, bytes);
	if (sent < 0)
		fail("SP_multicast", sent);
}

int main(int count, char **arguments)
{
	static char bytes[1 << 17], groups[MEMBERS_MAX * 2][MAX_GROUP_NAME];
	char own[MAX_GROUP_NAME], sender[MAX_GROUP_NAME], name[16];
	int error = 0, is_complete = 0;
	if (count != 7)
		return 2;
	read_arguments(arguments);
	message_service = strcmp(arguments[6], "safe") ? AGREED_MESS : SAFE_MESS;
	snprintf(name, sizeof name, "m%u", member.self);
	for (int attempt = 0; attempt < 200; attempt++) {
		error = SP_connect("4803@127.0.0.1", name, 0, 1, &box, own);
		if (error == ACCEPT_SESSION)
			break;
		pause_ns(100000000);
	}
	if (error != ACCEPT_SESSION)
		fail("SP_connect", error);
	error = SP_join(box, "bench");
	if (error)
		fail("SP_join", error);
	for (;;) {
		service service = 0;
		int16 type;
		int endian, names;
		int length = SP_receive(box, &service, sender, MEMBERS_MAX * 2, &names, groups, &type, &endian, sizeof bytes, bytes);
		if (length < 0)
			fail("SP_receive", length);
		if (Is_regular_mess(service))
			handle_message(bytes, length);
		else if (Is_reg_memb_mess(service) && names == (int)member.members && !is_complete++)
			start_load();
	}
}
